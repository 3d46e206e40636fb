package health_test

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/health"
	"github.com/postrider/postrider/store/storetest"
)

func Example() {
	store := storetest.NewMem(nil) // yours: sqlstore or pgxstore
	var outboxes health.Registry
	err := outboxes.Add("orders", store, &health.Thresholds{DegradedCount: 1000, UnhealthyAge: 10 * time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := outboxes.Check(context.Background(), "orders", time.Now())
	fmt.Println(result.Name, result.Status, result.Pending, err)
	// Output: orders healthy 0 <nil>
}
