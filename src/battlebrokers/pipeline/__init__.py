"""From evidence to facts: recorded events become journeys, journeys become measures.

Everything that touches Spark lives here; `client.Analyst` is the door for those who must not import it.
"""
