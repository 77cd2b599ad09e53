"""The page of `iris report`: one file of HTML that needs nothing beside it, ever."""
