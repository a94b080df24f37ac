// wait_state.h: a wait in progress, and the state that one turn of its loop leaves it in.
#pragma once

enum hccc_wait_state {
  HCCC_WAITING,      // go on
  HCCC_EXPIRED,      // the deadline has passed
  HCCC_LAUNCH_LOST,  // another wait has ended the launch
  HCCC_LOOK          // a period has passed: look at extensions and the launch's deadline
};

struct hccc_pending_wait {
  const unsigned* flag;
  unsigned want;
  bool exactly;                      // no later value will do
  const unsigned* abort;             // not 0 once the launch is lost
  unsigned long long limit, period;  // ticks of hccc_clock
  unsigned long long start, polled;  // times; 0 before the first turn
  unsigned spins;
};
