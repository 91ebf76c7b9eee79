"""BattleBrokers: which message broker fits my IoT load, how much can it take, and what holds it back?"""

__version__ = "0.1.0"
