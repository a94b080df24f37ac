// device_layer.h: streams of the device layer's CPU platform (hcccrt.h): of the device layer in
// this library, or of another one in the process, as Python programs have.
#pragma once

#include <functional>

#include "../device/include/hcccrt.h"

namespace hccc::device_layer {

// Sets the device layer of the streams: a handle of dlopen; null: this library's. Throws Error.
void set(void *library);

// Returns whether a stream is being captured into a graph. Throws Error where it is no stream.
bool captures(hcccrtStream_t stream);
// Calls a function in a stream. Throws Error.
void launch(hcccrtStream_t stream, hcccrtHostFn_t function, void *argument);
// Returns when a stream has done what is in it. go_on: asked now and then, throws where waiting has no more sense.
// Throws Error.
void wait(hcccrtStream_t stream, const std::function<void()> &go_on);

}  // namespace hccc::device_layer
