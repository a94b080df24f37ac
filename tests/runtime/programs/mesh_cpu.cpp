#include "mesh.inc"

#include "entry.h"
