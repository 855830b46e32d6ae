"""Programs on a graphics card, through CuPy: nothing here imports it before an array of its is there."""
