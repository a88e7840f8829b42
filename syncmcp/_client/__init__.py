"""From a method to a result: the client, its session, the operations, their driver."""
