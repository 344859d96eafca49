"""What a scene holds: layouts, furniture, plants, road users, cameras, motion."""
