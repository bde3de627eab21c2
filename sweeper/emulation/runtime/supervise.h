#pragma once

namespace simt {

// Arranges for `signal` when `parent`, the process that started this one, ends; it may have ended already.
void die_with_parent(int parent, int signal);

// Runs `program` (null-terminated) and returns its exit code, 128 and more for a signal. When `parent` ends
// meanwhile, the whole process group is killed.
int supervise(int parent, char** program);

}  // namespace simt
