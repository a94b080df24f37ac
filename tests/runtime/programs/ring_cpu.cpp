#include "ring.inc"

#include "entry.h"
