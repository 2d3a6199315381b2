"""Files of a project: tickets, rows, inspection, expiry; content lies in the object store.

Owns the tables `files_*`; serves FilesService and FilesInternalService.

May import the contract, the kernel and `windlass.datasets`; never another service.
"""
