"""From a graph to steps on numbered buffers with offsets: binding, liveness, order, schedule."""
