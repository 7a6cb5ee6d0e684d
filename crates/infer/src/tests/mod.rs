//! Conditions of random accesses against a slow and obvious reference, and those of the paper's figures.

mod figures;
mod lifted;
mod reference;
