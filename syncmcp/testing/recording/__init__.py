"""Sessions with real servers, recorded once and played back."""
