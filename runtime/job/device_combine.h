// device_combine.h: reductions of a border in memory of a GPU, by kernels of hccc's, each compiled when a call first
// needs it and kept beside the standard collectives; and who reduces where there is none.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../communicator/device.h"
#include "saved.h"

namespace hccc::job {

struct DeviceCombine {
  // Put into a stream: to = a op b, element by element; and the division of an average. Not 0: the device refuses.
  int (*combine)(void *to, const void *a, const void *b, size_t n, void *stream) = nullptr;
  int (*divide)(void *at, size_t n, int by, void *stream) = nullptr;
};

class DeviceCombines {
 public:
  // Returns the functions of a type and a reduction on the thread's device; null: there are none. The first time
  // it may compile them; stopped: asked ten times a second, ends that.
  const DeviceCombine *of(const Device &device, int type, int op, const std::function<bool()> &stopped);
  // Says why there are none.
  const std::string &why(int type, int op) const { return known_.at({type, op}).why; }

 private:
  struct Known {
    std::optional<DeviceCombine> functions;
    std::string why;
  };
  std::map<std::pair<int, int>, Known> known_;
};

// What a rank can do of a reduction at its border: by hccc's functions, by its library with a rank beside it.
struct Reduces {
  double by_hccc = 1, by_library = 0;
};

// Returns of each vendor cluster whether its library reduces what comes over a border: not all its ranks have hccc's
// functions, and all have the library's.
std::vector<bool> libraries_that_reduce(const SavedJob &job, const std::vector<Reduces> &of_ranks);

}  // namespace hccc::job
