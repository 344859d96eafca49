"""A network whose matrix products are left to the vendor's library, and all between two of them is one kernel."""
