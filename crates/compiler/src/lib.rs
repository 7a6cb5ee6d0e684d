//! `crashproof cc`: a drop-in compiler driver over clang-19 that instruments every store, flush and fence, and embeds the
//! front end's bitcode, the site table and the compile command.
