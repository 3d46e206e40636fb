// Package storetest proves outbox stores, and helps to test what uses them.
//
//   - [Mem] is the reference store: the contract in plain Go, in memory.
//   - [Run] is the conformance suite. A database author calls it with a
//     [Harness]; it runs one subtest per rule of the contract.
//   - [Model] runs random operation lists on Mem and on the store under test
//     and compares what both answer.
//   - [Fault] wraps a store and injects errors before or after the commit.
package storetest
