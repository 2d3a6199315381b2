"""What tests of every permission share."""
