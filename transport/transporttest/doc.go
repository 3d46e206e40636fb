// Package transporttest is for tests: [Recorder] is a transport without a broker,
// for whoever tests a dispatcher.
//
// Only tests import it.
package transporttest
