//! The loops that run, in the order in which they are asked.

use crate::world::Loop;
use crate::{controllers, kubelet, network, scheduler};

/// Every loop: policies and the routes of Services, the controllers, the scheduler, the kubelet.
pub fn all() -> Vec<&'static Loop> {
    // Routes first: at a start, what runs already is to be found before anything new is made.
    let mut all: Vec<&'static Loop> = network::ALL.to_vec();
    all.extend(controllers::ALL);
    all.extend([&scheduler::LOOP, &kubelet::IMAGES, &kubelet::PRESSURE, &kubelet::LOOP]);
    all
}
