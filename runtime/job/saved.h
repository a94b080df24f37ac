// saved.h: a Job, read from its table (compiler/ir/job_table.py): its collective, vendor clusters and steps.
#pragma once

#include <stdint.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace hccc::job {

constexpr int NOBODY = -1;

// What a step does; the last two between vendor clusters.
enum class Op { REDUCE, BROADCAST, GATHER, SCATTER, ALL_GATHER, SEND, COPY_OVER, REDUCE_OVER };
constexpr int N_OPS = 8;

struct Step {
  Op op;
  int src, dst, part, sender, receiver;

  bool crosses() const { return op >= Op::COPY_OVER; }
  std::string text() const;  // as a job's text has it
};

// Which parts a rank has and wants, and where they are in its buffers, as ir/collective.py has it.
class Collective {
 public:
  enum class What { ALLGATHER, ALLREDUCE, REDUCESCATTER, BROADCAST, REDUCE, GATHER, SCATTER, ALLTOALL, SENDRECV };

  // name: with a v behind it where every block has a length of its own. Throws Error: there is no collective of the name,
  // or none of so many ranks and parts, and that root.
  Collective(const std::string &name, int64_t n_ranks, int64_t n_parts, int64_t root);

  const char *name() const;
  int n_ranks() const { return n_ranks_; }
  int n_parts() const { return n_parts_; }
  int root() const { return root_; }
  bool uneven() const { return uneven_; }
  bool reduces() const { return what_ == What::ALLREDUCE || what_ == What::REDUCE || what_ == What::REDUCESCATTER; }
  bool rooted() const;
  bool gathers() const { return what_ == What::ALLGATHER; }
  int per_block() const { return per_block_; }
  int block_of(int part) const { return part / per_block_; }
  bool wants(int rank, int part) const;
  // Return the block of a part in the send buffer of a rank that holds it, and in the receive buffer of one that
  // wants it.
  int input_block(int part) const;
  int output_block(int part) const;
  int input_blocks(int rank) const;
  int output_blocks(int rank) const;
  int most_blocks() const;
  int blocks() const { return n_parts_ / per_block_; }  // in all
  // Returns, in place, the blocks from the receive buffer to the send buffer of a rank.
  int alias_blocks(int rank) const;
  // Returns whether, in place, one part is where another ends.
  bool swaps_in_place() const { return what_ == What::ALLTOALL || what_ == What::SENDRECV; }

 private:
  What what_{};
  bool uneven_ = false;
  int n_ranks_ = 0, n_parts_ = 0, root_ = 0, per_block_ = 1;
};

// The ranks of one vendor's library, in their order, and those of them that have links to others.
struct VendorCluster {
  std::vector<int> ranks, border;
  std::vector<int64_t> weights;  // of border ranks
};

// Where borders cut a part: at a / b of it.
struct Cut {
  int64_t a, b;
};

struct SavedJob {
  // Reads a table and checks that the job is sound. Throws Error.
  explicit SavedJob(const std::string &table);

  std::vector<Cut> cuts() const;
  // Returns the border rank of each vendor cluster that has each piece, which is what lies between two cuts.
  std::vector<std::vector<int>> owners(const std::vector<Cut> &cuts) const;

  std::string name;
  Collective collective;
  std::vector<VendorCluster> clusters;
  std::vector<int> cluster_of;  // of each rank
  std::vector<Step> steps;
  std::vector<std::pair<int64_t, int>> micro_batches;  // of calls of so many bytes or more; none: they are to be found
  std::array<unsigned char, 16> digest;                // of the table
};

}  // namespace hccc::job
