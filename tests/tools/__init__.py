"""Programs that examine the tests themselves."""
