"""The command line: ``vcomp fit``, ``gstudy``, ``dstudy``, ``tau`` and others."""
