// device_layer.h: streams of the CPU platform of the device layer (hcccrt.h): of the one that is part of
// this library, or of another in the process, as that of Python programs is.
#pragma once

#include "../device/include/hcccrt.h"

namespace hccc::device_layer {

// Whose streams they are: what dlopen returned. Null: this library's. Throws Error.
void set(void *library);

// Whether what is put into a stream becomes part of a graph. Throws Error where it is no stream.
bool captures(hcccrtStream_t stream);
// Calls a function in a stream. Throws Error.
void launch(hcccrtStream_t stream, hcccrtHostFn_t function, void *argument);

}  // namespace hccc::device_layer
