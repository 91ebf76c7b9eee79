"""A room with a sensor, two monitors and two actuators, who know nothing of each other but two resources."""
