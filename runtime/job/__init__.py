"""Jobs at run time: calls of vendors' libraries and copies over the border, in lanes.

`schedule` makes the tasks of a rank's call from a Job; `loaded` is a Job that a communicator has
loaded. The lanes are C++ (job.cpp), part of the library of communicators.
"""
