"""Connects the servers and clients of a service to regent, which assigns single-owner regions to the servers.

A server runs an :class:`~regent_agent.agent.Agent`, or a :class:`~regent_agent.threads.ThreadedAgent` where it is no
asyncio program. A client looks owners up with a :class:`~regent_agent.router.Router`.
"""
