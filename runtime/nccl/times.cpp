// times.cpp: see times.h.
#include "times.h"

#include <fstream>
#include <sstream>

#include "failed.h"

namespace hccc_nccl {

bool is_times(const std::string &path) {
  std::ifstream in(path);
  std::string of_hccc, times;
  in >> of_hccc >> times;
  return of_hccc == "hccc" && times == "times";
}

Times read_times(const std::string &path) {
  std::ifstream file(path);
  std::stringstream in;
  in << file.rdbuf();
  Times made;
  made.hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : in.str()) made.hash = (made.hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  std::string word;
  const auto next = [&](const char *wanted) { return (in >> word) && word == wanted; };
  int version = 0;
  size_t n = 0;
  bool right = next("hccc") && next("times") && (in >> version) && version == 1 && next("collective") &&
               (in >> made.collective >> made.n_ranks >> made.root) && next("library") && (in >> made.library) &&
               next("rows") && (in >> n);
  for (Times::Row row; right && made.rows.size() < n; made.rows.push_back(row)) {
    right = (in >> row.bytes >> row.own >> row.vendors) && row.own > 0 && row.vendors > 0;
    right = right && (made.rows.empty() || made.rows.back().bytes < row.bytes);
  }
  if (!right || made.rows.empty() || (in >> word))
    throw Failed{ncclInvalidUsage, path + " is no table of times that this version reads: `hccc sim ALGO --cluster FILE "
                                   "-o TABLE` writes one"};
  return made;
}

const Times::Row *row_of(const std::vector<Times> &all, const char *collective, int root, size_t bytes) {
  for (auto of = all.rbegin(); of != all.rend(); ++of) {
    if (of->collective != collective || (of->root >= 0 && of->root != root)) continue;
    const Times::Row *found = nullptr;
    for (const Times::Row &row : of->rows)
      if (row.bytes <= bytes) found = &row;
    return found;
  }
  return nullptr;
}

}  // namespace hccc_nccl
