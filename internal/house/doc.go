// Package house holds the rules of the repository as tests: which package may
// import which, what the modules may require, how long a file may be. They
// read the tree and build nothing.
package house
