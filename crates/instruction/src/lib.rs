//! Decodes an instruction that writes memory and performs it elsewhere.
