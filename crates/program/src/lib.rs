//! The whole-program view of the bitcode that `crashproof cc` embeds: all modules linked, the call graph, types.
