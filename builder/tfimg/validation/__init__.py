"""The host side of the suite: run it inside an image, judge, report."""
