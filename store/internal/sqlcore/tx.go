package sqlcore

import "reflect"

// CheckTx refuses nil, and nil pointers in the interface, which would panic
// inside the user's library.
func CheckTx(tx any) error {
	if tx == nil {
		return invalid("the transaction is nil: begin one and pass it")
	}
	switch v := reflect.ValueOf(tx); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Interface:
		if v.IsNil() {
			return invalid("the transaction is a nil %T: begin one and pass it", tx)
		}
	}
	return nil
}
