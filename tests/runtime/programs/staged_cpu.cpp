#include "staged.inc"

#include "entry.h"
