"""How a program is best compiled and called on a cluster, by simulated time for the sizes asked."""
