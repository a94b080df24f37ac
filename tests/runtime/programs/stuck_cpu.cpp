#include "stuck.inc"

#include "entry.h"
