"""The papers' tables as files, the runs that fill them, and the page that shows them."""
