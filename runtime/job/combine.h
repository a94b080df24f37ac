// combine.h: reductions of a job at a border, by the arithmetic of hccc's kernels.
#pragma once

#include <stddef.h>

namespace hccc::job {

// to = a op b, element by element; `to` may be a or b.
using Combine = void (*)(void *to, const void *a, const void *b, size_t count);
// Divides each element by n, as an average does.
using Divide = void (*)(void *at, size_t count, int n);

// Multiplies each element by the one of these bits, as premul_sum does; `to` may be `from`.
using Scale = void (*)(void *to, const void *from, size_t count, unsigned long long bits);

// Returns the function of a type and a reduction; null: there is none. An average adds, and so does premul_sum.
Combine combine_of(int type, int op);
Divide divide_of(int type);
Scale scale_of(int type);

}  // namespace hccc::job
