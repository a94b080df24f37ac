#include "many.inc"

#include "entry.h"
