// fake_runtime.cpp: a runtime of CUDA (PREFIX cuda) or HIP that writes down how it is called.
//
// Every function takes what six registers and the stack hold, as the System V ABI passes integers,
// pointers and structures; the test knows which of them are arguments. SYMBOLS lists the functions
// that only write down, EXTRA those below.
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)
#define FN(name) JOIN(PREFIX, name)

struct Stack {
  long word[8];
};

static std::string *const written = new std::string;
static int result = 0, devices = 2, version = VERSION;

static int note(const char *name, std::initializer_list<long> registers, const Stack &stack) {
  *written += name;
  for (const long word : registers) *written += " " + std::to_string(word);
  for (const long word : stack.word) *written += " " + std::to_string(word);
  *written += "\n";
  return result;
}

extern "C" {

// For the test.
const char *fake_written() { return written->c_str(); }
void fake_clear() { written->clear(); }
void fake_result(int value) { result = value; }
void fake_devices(int value) { devices = value; }

#define X(name)                                                              \
  int name(long a, long b, long c, long d, long e, long f, Stack s) {        \
    return note(#name, {a, b, c, d, e, f}, s);                               \
  }
SYMBOLS
#undef X

int FN(GetDeviceCount)(int *n) {
  *n = devices;
  return result;
}

int FN(RuntimeGetVersion)(int *v) {
  *v = version;
  return 0;
}

const char *FN(GetErrorString)(int error) {
  static char text[64];
  std::snprintf(text, sizeof text, "the vendor's error %d", error);
  return text;
}

// The value of attribute a is 1000 + a.
int FN(DeviceGetAttribute)(int *value, int attribute, int device) {
  *value = 1000 + attribute;
  return note(TEXT(FN(DeviceGetAttribute)), {attribute, device}, {});
}

int FN(PointerGetAttributes)(char *out, const void *pointer) {
  const int type[2] = {POINTER_TYPE, 1};
  const void *const where[2] = {pointer, nullptr};
  std::memcpy(out, type, 8);
  std::memcpy(out + 8, where, 16);
  return note(TEXT(FN(PointerGetAttributes)), {reinterpret_cast<long>(pointer)}, {});
}

static int properties(char *out, size_t memory_at, size_t arch_at) {
  const size_t bytes = size_t{80} << 30;
  std::strcpy(out, "A GPU");
  std::memcpy(out + memory_at, &bytes, sizeof bytes);
  if (arch_at) std::strcpy(out + arch_at, "gfx942:sramecc+:xnack-");
  return result;
}

EXTRA
}
