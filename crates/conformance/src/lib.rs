//! Every operation's cases on every backend, against the reference.
