//! Links kloop at a fixed address, as Go does with Kubernetes' own programs. Each start would otherwise write 63,000 addresses into 1 MB of
//! memory of its own, and that is a third of the time that a command takes. The stack, the heap and the libraries keep random addresses.

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=.cargo/build.rs");
    if var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
