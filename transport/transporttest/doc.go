// Package transporttest is for tests: [Run] proves a transport against the
// rules of [transport.Transport], and [Recorder] is a transport without a
// broker, for whoever tests a dispatcher.
//
// Only tests import it.
package transporttest
