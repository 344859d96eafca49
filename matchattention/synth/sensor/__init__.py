"""From linear light to an image: lens, exposure, noise, compression."""
