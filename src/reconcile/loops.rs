//! The loops that run, in the order in which they are asked.

use crate::world::Loop;
use crate::{controllers, kubelet, network, scheduler};

/// Every loop: the controllers, the scheduler, the kubelet, the routes of Services.
pub fn all() -> Vec<&'static Loop> {
    let mut all: Vec<&'static Loop> = controllers::ALL.to_vec();
    all.extend([&scheduler::LOOP, &kubelet::LOOP, &network::LOOP]);
    all
}
