"""What runs inside a box, and nothing else of this project does."""
