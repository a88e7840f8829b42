"""Ready-made user interfaces in which a person answers what servers ask."""
