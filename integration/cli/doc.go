// Package cli tests the postrider program as its users run it: as a process,
// against real engines.
package cli
