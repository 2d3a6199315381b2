"""Networks from which alone an organization's credentials are taken.

May import the domain and the tables of users, its demands, the restrictions and the news of its
keys.
"""
